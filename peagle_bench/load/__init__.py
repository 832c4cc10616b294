"""The load path: requests out, stamped bytes in, records after the cell."""
