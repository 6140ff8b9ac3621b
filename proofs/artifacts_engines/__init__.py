"""One pipeline that passes files on, on three engines: are they the same bytes everywhere?"""
