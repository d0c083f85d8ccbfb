# frozen_string_literal: true

# Something for each of the programs that are kept: calls, raises, backtraces as strings,
# allocations, collections, slow calls, two threads.
class Refused < StandardError; end
class Item; end

class Shop
  def refuse = raise(Refused, "no")
  def told = caller.size
  def slow = 0.15.then { |seconds| sleep seconds }
  def fill = Array.new(50) { Item.new }
  def compute = 2_000.times { |i| i * i }
end

shop = Shop.new
Thread.new { loop { shop.compute } }
puts "ready"
$stdout.flush
loop do
  20.times { shop.refuse rescue nil }
  20.times { shop.told }
  20.times { shop.fill }
  shop.slow
  GC.start
end
