"""Documents of other tools as they are written: read by readers, importers and the command line alike."""
