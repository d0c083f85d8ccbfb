# frozen_string_literal: true

# A program that is measured under a peer requires this file. Lines on stdin switch the peer on and
# off. The thread that reads them exists in both cases.
require_relative "peers"

Thread.new do
  while (line = $stdin.gets)
    command, name = line.split
    command == "start" ? Peers.start(name) : Peers.stop(name)
    puts "peer #{command}"
  end
end
