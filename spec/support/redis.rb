# frozen_string_literal: true

require "socket"

module Support
  # A real Redis. Debian's redis-tools has it under the name of another tool. The package
  # redis-server would start a service.
  class Redis < Child
    def self.path
      names = ENV["PATH"].split(":").product(%w[redis-server redis-check-rdb]).map do |folder, name|
        File.join(folder, name)
      end
      names.find { |path| File.executable?(path) }
    end

    def initialize
      @folder = Dir.mktmpdir
      File.symlink(Redis.path, File.join(@folder, "redis-server"))
      # Another process might take the port before Redis does, but rarely.
      @port = TCPServer.open("127.0.0.1", 0) { |server| server.addr[1] }
      super(File.join(@folder, "redis-server"), "--port", @port.to_s, "--bind", "127.0.0.1", "--save", "",
            "--dir", @folder)
      await_line(/Ready to accept connections/)
    end

    def url = "redis://127.0.0.1:#{@port}/0"

    def kill_all
      super
      FileUtils.rm_rf(@folder)
    end
  end
end
