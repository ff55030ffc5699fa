"""Run one server for as long as the process that wants it lives.

A test process can be killed without a chance to clean up. The kernel then closes its
end of our standard input, which is also how it tells us that it needs the server no
more: there is one way to the end, and every test run takes it.

Started as a script of its own: keeper.py SIGNAL FOLDER COMMAND…
"""

import contextlib
import os
import shutil
import subprocess
import sys
import threading


def main(stop_signal: int, folder: str, *command: str) -> int:
    server = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=2)
    is_unwanted = threading.Event()

    def end_with_owner() -> None:
        while os.read(0, 1):
            pass
        is_unwanted.set()
        server.send_signal(stop_signal)

    threading.Thread(target=end_with_owner, daemon=True).start()
    # for the owner's own signals; it may be gone before it can read this
    with contextlib.suppress(BrokenPipeError):
        os.write(1, f"{server.pid}\n".encode())
    code = server.wait()
    # a server that was stopped is perhaps started again
    if is_unwanted.is_set():
        shutil.rmtree(folder, ignore_errors=True)
    return code


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), *sys.argv[2:]))
