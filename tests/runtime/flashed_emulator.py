"""A program that flashes an emulator at a socket, in place of a real board."""

FLASH_PROGRAM = """
import os, signal, socket, subprocess, sys, time
elf, port, pidfile = sys.argv[1:]
if os.path.exists(pidfile):
    os.kill(int(open(pidfile).read()), signal.SIGKILL)
    while socket.socket().connect_ex(("127.0.0.1", int(port))) == 0:
        time.sleep(0.05)
subprocess.run(
    ["qemu-system-arm", "-machine", "mps2-an386", "-kernel", elf, "-icount", "shift=0",
     "-display", "none", "-monitor", "none", "-nodefaults", "-daemonize", "-pidfile", pidfile,
     "-serial", f"tcp:127.0.0.1:{port},server=on,wait=off"],
    check=True,
)
"""
"""Its arguments are the image, the port, and a file for the emulator's process ID."""
