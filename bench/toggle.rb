# frozen_string_literal: true

# Required by a program that is measured under a peer: switches it on and off by lines on stdin. The
# thread that waits for them is there in both cases.
require_relative "peers"

Thread.new do
  while (line = $stdin.gets)
    command, name = line.split
    command == "start" ? Peers.start(name) : Peers.stop(name)
    puts "peer #{command}"
  end
end
