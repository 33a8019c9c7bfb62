"""Speed and memory compared with other libraries in the same run: `make bench`, or `python -m benchmarks NAME`."""
