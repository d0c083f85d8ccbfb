# frozen_string_literal: true

# With PORT=0 Puma takes any free port and prints it. With PRELOAD=0 each worker loads the
# application, as a phased restart (kill -USR1) needs: preload_app! has no new code for them.
bind "tcp://127.0.0.1:#{ENV.fetch("PORT", "9292")}"
environment ENV.fetch("RACK_ENV", "production")
workers Integer(ENV.fetch("WORKERS", "2"))
# One thread each. With several, Puma 6.0 to 7.2 sometimes answers without a status line: a thread
# hands a connection on, then clears its buffer (Server#process_client), to which another may write.
threads 1, 1
preload_app! ENV["PRELOAD"] != "0"
