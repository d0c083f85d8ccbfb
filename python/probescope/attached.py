# A process runs this, with a call at its end, when `probescope attach` asks it to (PEP 768):
# probescope/command/attach.py. CPython prints what is raised here, and it is run on the main
# thread, where signals arrive: all is done on a thread.
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
        except OSError:  # of another user; then whoever asked does it
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
