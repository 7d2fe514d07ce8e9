# Loads gpulease in kernels that a gpulease hub started, and nowhere else.
# It leaves no name behind and never stops a kernel from starting.
if __import__("os").environ.get("GPULEASE_AUTOLOAD") == "1":
    try:
        __import__("gpulease.kernel", fromlist=["autoload"]).autoload()
    except Exception as _gpulease_problem:
        __import__("os").environ["GPULEASE_AUTOLOAD_ERROR"] = repr(_gpulease_problem)
