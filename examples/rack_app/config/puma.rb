# frozen_string_literal: true

# PORT=0 takes any free port, and Puma prints which. PRELOAD=0 lets each worker load the application by itself, which is what
# Puma wants for a phased restart (kill -USR1): with preload_app! it has no new code to give to new workers.
bind "tcp://127.0.0.1:#{ENV.fetch("PORT", "9292")}"
environment ENV.fetch("RACK_ENV", "production")
workers Integer(ENV.fetch("WORKERS", "2"))
# One thread each. With several, Puma 6.0 to 7.2 sometimes answers without its status line: the thread that hands a connection
# on clears the connection's buffer afterwards (Server#process_client), when another may be writing to it.
threads 1, 1
preload_app! ENV["PRELOAD"] != "0"
