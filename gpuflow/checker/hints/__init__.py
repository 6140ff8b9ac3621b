"""What to do about a finding, and sentences about refusals."""
