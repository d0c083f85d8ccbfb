# frozen_string_literal: true

# An application with latency probes on methods of every kind. For each line on stdin it calls each
# method a known number of times.
require "probescope"
require "English"
require "timeout"

class Base
  def old = 1
  def total(value) = value
end

module Audited
  def total(value) = super * 10
end

module Shop
  module Priced
    def price = 1
    def self.extended_price = 2

    module_function

    def rate = 3
  end

  class Cart < Base
    include Priced
    prepend Audited

    def pay(first, second = 2, *rest, key:, other: 4, **more, &block)
      [first, second, rest, key, other, more, block&.call]
    end
    alias buy pay
    def self.open(size, &) = Array.new(size, &)
    def self.shut = :shut
    def paid?(*) = true
    def [](index) = index

    def name=(value)
      @name = value
    end

    def fails = raise(ArgumentError, "no")
    def recovers = fails rescue nil

    def ensures
      yield
    ensure
      @ensured = true
    end

    def naps(seconds) = sleep(seconds)
    def count_down(left) = left.zero? ? 0 : count_down(left - 1)
    def overflows(left = 0) = overflows(left + 1)
    def edition = 1
    def waits = Fiber.yield(1)
    def numbers = yield(1) + yield(2)

    def retries
      @tried = @tried.to_i + 1
      raise "again" unless (@tried % 3).zero?

      @tried
    rescue RuntimeError
      retry
    end

    def defines = self.class.class_eval { def defined_late = 7 }
    def total(value) = super + 1
    def stuck(queue) = queue.push(1) && sleep
    def method_missing(name, *given) = name == :magic ? given : super
    def respond_to_missing?(name, *) = name == :magic || super

    # The body is the same block at each call.
    def self.make_body
      define_method(:body) do |x, y: 1, &block|
        return [x, y, block.call] if x

        nil
      end
    end
    make_body

    def gone = 1

    private

    def secret(value, by: 1) = value * by

    protected

    def guarded = 2
  end

  class Ice
    include Priced

    def cold = 3
    freeze
  end

  class Blank < BasicObject
    def blank = 5
  end

  module Polite
    REFINED = refine(Cart) { def greet(name) = "hello #{name}" }
  end

  ONE = Cart.new
  def ONE.only = 5
end

using Shop::Polite

# Returns the state of the class before it is traced, and the code of its methods.
def shape
  methods = %i[pay secret guarded fails].map { |name| Shop::Cart.instance_method(name) }
  bodies = methods.map do |one|
    code = RubyVM::InstructionSequence.of(one)
    [one.owner, one.arity, one.parameters, one.source_location, code.object_id]
  end
  kinds = %i[public_instance_methods private_instance_methods protected_instance_methods]
  names = kinds.map { |kind| Shop::Cart.send(kind, false) }
  [Shop::Cart.ancestors, Shop::Cart.singleton_class.ancestors, names, bodies]
end

Late = Class.new(StandardError)
TRACE = Probescope::Latency.method(:trace)
before = shape
names = TRACE.call(Shop::Cart,
                   *%i[pay fails recovers ensures naps count_down overflows edition waits numbers defines
                       gone stuck method_missing])
names << TRACE.call(Shop::Cart, :body) unless RUBY_VERSION.start_with?("3.1.")
names << TRACE.call(Shop::Priced, :price) << TRACE.call(Shop::Priced, :rate)
# Each is called once. One probe for all of them saves seconds, because the kernel takes long to
# remove a probe.
ONCE = { Shop::Cart => %i[open paid? [] name= secret guarded retries total],
         Shop::Cart.singleton_class => [:shut], Shop::Priced => [:extended_price], Shop::Ice => [:cold],
         Shop::ONE.singleton_class => [:only], Shop::Blank => [:blank],
         Audited => [:total], Base => [:total], Shop::Polite::REFINED => [:greet] }.freeze
names |= ONCE.flat_map { |owner, methods| methods.map { |name| TRACE.call(owner, name, as: "Shop.once") } }
raise "twice" unless TRACE.call(Shop::Cart, :pay) == names.first

TRACE.call(Shop::Cart, :buy, as: "Shop.Cart.never")
raise "untrace" unless Probescope::Latency.untrace(Shop::Cart, :buy)
raise "untrace" if Probescope::Latency.untrace(Shop::Cart, :buy)
raise "changed" unless before == shape

# Returns the results of all these calls, and the duration of naps by the application's clock.
def use_all(cart)
  said = []
  said << cart.pay(1, 3, 5, key: 6, more: 7) { 8 } << cart.buy(1, key: 2)
  said << cart.paid? << cart[4] << (cart.name = 3)
  said << Shop::Cart.open(2) { |i| i } << Shop::Cart.shut
  said << cart.send(:secret, 4, by: 2) << cart.send(:guarded) << cart.price
  said << Shop::Priced.extended_price << Shop::Priced.rate << cart.send(:rate)
  said << Shop::Ice.new.cold << Shop::ONE.only
  said << (cart.secret(1) rescue $ERROR_INFO.class)
  said << (cart.fails rescue $ERROR_INFO.message) << cart.recovers
  said << catch(:out) { cart.ensures { throw :out, 1 } }
  said << cart.ensures { break 2 } << [1].each { |i| next cart.ensures { i } }
  said << (cart.ensures { raise "in a block" } rescue $ERROR_INFO.message)
  said << cart.count_down(4) << cart.retries
  said << (Timeout.timeout(0.02, Late) { cart.naps(30) } rescue $ERROR_INFO.class)
  fibers = Array.new(2) { Fiber.new { cart.waits } }
  fibers.each(&:resume)
  fibers.each { |fiber| fiber.resume(2) }
  numbers = cart.enum_for(:numbers)
  said << numbers.next << numbers.next
  said << Array.new(4) { Thread.new { 5.times { cart.edition } } }.each(&:join).size
  said << cart.body(1, y: 2) { 3 } << cart.total(2) << cart.magic(6)
  said << (cart.unknown rescue $ERROR_INFO.class) << cart.greet("you")
  said << Shop::Blank.new.blank << Shop::Ice.new.price
  queue = Queue.new
  stuck = Thread.new { cart.stuck(queue) }
  queue.pop
  said << stuck.kill.join.value
  start = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
  cart.naps(0.03)
  [said, Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond) - start]
end

$stdout.sync = true
unlistened, = use_all(Shop::Cart.new)
puts "ready #{names.join(" ")}"
while (line = $stdin.gets)
  probes = Probescope::Latency.probes
  case line.chomp
  when "listened"
    sleep 0.002 until Probescope::Latency.probes.each_value.all? { |probe| probe[:listened] }
    puts "listened #{Probescope::Latency.probes.count { |_, probe| probe[:error] }}"
  when "use"
    said, took = use_all(Shop::Cart.new)
    raise "#{said} #{unlistened}" unless said == unlistened && before == shape

    begin
      Shop::Cart.new.overflows
    rescue SystemStackError
      # as it does anywhere
    end
    10.times { Shop::Cart.new.gone }
    puts "used #{took}"
  when "change"
    Shop::Cart.undef_method(:gone)
    Shop::Cart.class_eval "def edition = 2", __FILE__, __LINE__
    Shop::Cart.make_body
    sleep 0.002 until Probescope::Latency.probes["Shop.Cart.gone"][:error] # it updates them all
    Shop::Cart.new.edition
    Shop::Cart.new.body(nil)
    Shop::Cart.new.defines
    puts "changed #{Probescope::Latency.probes["Shop.Cart.gone"][:error]}"
  when "left"
    sleep 0.002 while Probescope::Latency.probes.any? { |_, probe| probe[:listened] }
    raise "left" unless use_all(Shop::Cart.new).first == unlistened

    puts "left"
  when "paths" then puts "paths #{probes.fetch("Shop.Cart.edition")[:path]}"
  when "fork"
    parent = Process.pid
    child = fork do
      while Process.ppid == parent
        Shop::Cart.new.edition
        sleep 0.005
      end
    end
    puts "forked #{child}"
  end
end
