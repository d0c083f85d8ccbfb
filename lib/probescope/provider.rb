# frozen_string_literal: true

require_relative "../probescope"

module Probescope
  # USDT probes of the application's own, defined while it runs:
  #
  #   SHOP = Probescope::Provider.define("shop") { probe :checkout, :string, :integer }
  #   SHOP[:checkout].fire("basket", 3)
  #   # The block runs only while a tracer listens.
  #   SHOP[:checkout].fire { [costly_name, costly_count] }
  #
  #   bpftrace -p PID -e 'usdt:*:shop:checkout { printf("%s %d\n", str(arg0), arg1) }'
  #
  # Wrong arguments raise in development (see .strict=) and are counted otherwise (Probe#dropped).
  # Where there are no probes (Probescope.unavailable_reason), nothing is ever enabled.
  class Provider
    # :integer is :int64, :unsigned :uint64. Tracers see a :float as the 64 bits of it.
    TYPES = {
      integer: -8, unsigned: 8, float: 0x108, string: 0x208,
      int8: -1, uint8: 1, int16: -2, uint16: 2, int32: -4, uint32: 4, int64: -8, uint64: 8
    }.freeze

    # Of a provider or a probe: what every tracer can be asked for.
    NAME = /\A[A-Za-z0-9_.+-]{1,127}\z/

    # What Probe is where the native library is not.
    class Unavailable
      attr_reader :name

      def initialize(name) = @name = name
      def fire(*) = false
      def enabled? = false
      def dropped = 0
    end

    class << self
      # A loaded provider with the probes of the block. Raises Error for names and types that cannot
      # be.
      def define(name, &block)
        provider = new(name)
        provider.instance_eval(&block) if block
        provider.load
        provider
      end

      # Whether wrong arguments raise where they are given: unless it is said, in development and
      # test (RACK_ENV or RAILS_ENV), or with PROBESCOPE_STRICT=1.
      def strict=(value)
        @strict = value ? true : false
        Native.strict = @strict if Probescope.unavailable_reason.nil?
      end

      def strict?
        @strict = strict_by_environment if @strict.nil?
        @strict
      end

      private

      def strict_by_environment
        return ENV["PROBESCOPE_STRICT"] == "1" if ENV.key?("PROBESCOPE_STRICT")

        %w[development test].include?(ENV["RAILS_ENV"] || ENV.fetch("RACK_ENV", nil))
      end
    end

    attr_reader :name, :probes
    # Why it is not loaded: nil, or a String such as "no place for the library of provider shop:
    # ...".
    attr_reader :error

    def initialize(name)
      @name = checked(name)
      @probes = {}
      @error = Probescope.unavailable_reason
      @native = Native::Provider.new(@name) unless @error
      Provider.strict = Provider.strict?
    end

    # Adds a probe while the provider is not loaded, and returns it.
    def probe(name, *types)
      name = checked(name).to_sym
      numbers = types.map do |type|
        TYPES[type] or raise Error, "no such type: #{type.inspect} (there are #{TYPES.keys.join(", ")})"
      end
      raise Error, "probe #{name} of #{@name} is there already" if @probes.key?(name)

      made = @native ? @native.add(name, numbers) : Unavailable.new(name)
      raise Error, made if made.is_a?(String)

      @probes[name] = made
    end

    def [](name) = @probes.fetch(name.to_sym)

    # Shows the probes to tracers. False when that cannot be: see #error.
    def load
      return false unless @native

      @error = @native.load
      @error.nil?
    end

    # Takes them back: they can be fired and say nothing. Probes can be added, and it can be loaded
    # again.
    def unload = @native ? @native.unload : true

    # The file by which a tracer reaches every process with this provider; nil when there is none.
    def path = @native&.path

    # How many calls had wrong arguments.
    def dropped = @probes.each_value.sum(&:dropped)

    private

    def checked(name)
      text = name.to_s.b
      unless text.match?(NAME)
        raise Error, "no name: #{text[0, 128].inspect} (1 to 127 of A-Z a-z 0-9 _ - . +)"
      end

      -text.force_encoding(Encoding::UTF_8)
    end
  end
end
