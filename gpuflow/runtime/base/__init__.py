"""What everything here stands on: files, options, records, processes, signals, outcomes."""
