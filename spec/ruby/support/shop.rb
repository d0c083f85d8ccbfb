# frozen_string_literal: true

# An application with its own probes, which reads orders from stdin.
require "probescope"

SHOP = Probescope::Provider.define("shop") do
  probe :checkout, :string, :integer, :float
  probe :sizes, :int8, :uint8, :int16, :uint16, :int32, :uint32
  probe :many, *([:unsigned] * Probescope::Native::MOST_ARGUMENTS)
  probe :plain
end
$stdout.sync = true
puts "ready #{SHOP.path}"
asked = 0

# Blocks that end by raise or throw, and one that unloads its own provider.
def within
  SHOP[:plain].fire { raise "mine" }
rescue RuntimeError => e
  thrown = catch(:out) { SHOP[:plain].fire { throw :out, "thrown" } }
  "#{e.message} #{thrown} #{SHOP[:plain].fire { SHOP.unload && [] }} #{SHOP[:plain].enabled?}"
end

commands = Thread.new do
  while (line = $stdin.gets)
    case line.chomp
    when "fork"
      parent = Process.pid
      child = fork do
        while Process.ppid == parent
          SHOP[:plain].fire
          sleep 0.005
        end
      end
      puts "forked #{child}"
    when "unload" then puts "unloaded #{SHOP.unload} #{SHOP.path.inspect}"
    when "load" then puts "loaded #{SHOP.load}"
    when "within" then puts "within #{within}"
    when "asked" then puts "asked #{asked} dropped #{SHOP.dropped} #{SHOP[:checkout].dropped}"
    end
  end
end
while commands.alive?
  SHOP[:checkout].fire("basket", -3, 1.5)
  SHOP[:checkout].fire(:symbol, 2**62, 2)
  SHOP[:checkout].fire { [nil, asked += 1, -0.0] }
  SHOP[:checkout].fire("wrong", "type", 1.0)
  SHOP[:checkout].fire("wrong count")
  SHOP[:checkout].fire { "not enough" }
  SHOP[:checkout].fire("a part of a longer string"[2, 4], 0, 0)
  SHOP[:sizes].fire(-128, 255, -32_768, 65_535, -2**31, (2**32) - 1)
  SHOP[:sizes].fire(-129, 0, 0, 0, 0, 0)
  SHOP[:sizes].fire(0, 0, 0, 65_536, 0, 0)
  SHOP[:many].fire(*(1..Probescope::Native::MOST_ARGUMENTS).map { |i| (2**64) - i })
  SHOP[:plain].fire
  sleep 0.005
end
