"""PORT=0 takes any free port, which gunicorn prints. PRELOAD=0: workers load the application."""

import os

bind = f"127.0.0.1:{os.environ.get('PORT', '9293')}"
workers = int(os.environ.get("WORKERS", "2"))
preload_app = os.environ.get("PRELOAD") != "0"
wsgi_app = "app:app"
# From gunicorn 25 on the control socket is in the home directory, where several servers share it.
control_socket_disable = True
