# frozen_string_literal: true

bind "tcp://127.0.0.1:0"
environment "production"
workers 2
threads 2, 2
preload_app!
