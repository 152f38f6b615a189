"""A simulated run for tests: programs of ranks are executed under the rules of CUDA, NCCL and MPI, and reports are written.

A cluster (`cluster.Cluster`) describes programs (`programs`), whose actions (`actions`) an engine (`engine`) executes in
virtual time. What it records is written as nsys reports (`write`), and it is known why everything happened when it did
(`truth`). A run can be repeated with one cause of lost time switched on (`causes`), so that its true cost is known to the
nanosecond.

It shares nothing with the demo but the form of reports: the demo computes a schedule, this one executes programs.
"""
