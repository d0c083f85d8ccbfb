# `probescope attach` (probescope/command/attach.py) has the process run this file with a call
# appended to it (PEP 768). CPython runs the file on the main thread, which also handles signals,
# and prints every exception raised there. So the work is done on another thread.
def _probescope_attach(folder: str, script: str) -> None:
    import _thread

    def load() -> None:
        import os
        import sys

        added = folder not in sys.path
        try:
            if added:
                sys.path.append(folder)
            os.unlink(script)
        except OSError:  # the file is another user's: `probescope attach` deletes it
            pass
        try:
            import probescope

            probescope.install()
        except BaseException:
            pass
        finally:
            if added and folder in sys.path:
                sys.path.remove(folder)

    _thread.start_new_thread(load, ())
