"""Pure functions from stored records to numbers: no clock, no network, no files."""
