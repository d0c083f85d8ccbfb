# frozen_string_literal: true

# PORT=0 takes any free port, and Puma prints which. PRELOAD=0 lets each worker load the application
# itself, as a phased restart (kill -USR1) needs it: preload_app! has no new code for new workers.
bind "tcp://127.0.0.1:#{ENV.fetch("PORT", "9292")}"
environment ENV.fetch("RACK_ENV", "production")
workers Integer(ENV.fetch("WORKERS", "2"))
# One thread each. With several, Puma 6.0 to 7.2 sometimes answers without its status line: what
# hands a connection on then clears its buffer (Server#process_client), and another may write to it.
threads 1, 1
preload_app! ENV["PRELOAD"] != "0"
