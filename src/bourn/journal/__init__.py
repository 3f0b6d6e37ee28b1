"""Where the events of generations are kept, to be read by any number of readers."""
