# frozen_string_literal: true

require_relative "../probescope"

module Probescope
  # The application's own USDT probes, defined at run time:
  #
  #   SHOP = Probescope::Provider.define("shop") { probe :checkout, :string, :integer }
  #   SHOP[:checkout].fire("basket", 3)
  #   # The block runs only while a tracer listens.
  #   SHOP[:checkout].fire { [costly_name, costly_count] }
  #
  #   bpftrace -p PID -e 'usdt:*:shop:checkout { printf("%s %d\n", str(arg0), arg1) }'
  #
  # Wrong arguments raise in development (see .strict=) and are counted otherwise (Probe#dropped).
  # Where there are no probes (Probescope.unavailable_reason), a probe is never enabled.
  class Provider
    # :integer is an alias of :int64, :unsigned of :uint64. A tracer reads a :float as its 64 bits.
    TYPES = {
      integer: -8, unsigned: 8, float: 0x108, string: 0x208,
      int8: -1, uint8: 1, int16: -2, uint16: 2, int32: -4, uint32: 4, int64: -8, uint64: 8
    }.freeze

    # The name of a provider or a probe. Every tracer accepts these characters.
    NAME = /\A[A-Za-z0-9_.+-]{1,127}\z/

    # Stands in for Native::Probe where the native library is not loaded.
    class Unavailable
      attr_reader :name

      def initialize(name) = @name = name
      def fire(*) = false
      def enabled? = false
      def dropped = 0
    end

    class << self
      # Returns a loaded provider with the probes of the block. Raises Error for invalid names and
      # types.
      def define(name, &block)
        provider = new(name)
        provider.instance_eval(&block) if block
        provider.load
        provider
      end

      # Whether fire raises on wrong arguments. The default is true in development and test
      # (RACK_ENV or RAILS_ENV), and with PROBESCOPE_STRICT=1.
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
    # Why the provider is not loaded: nil, or a String such as "no place for the library of provider
    # shop: ...".
    attr_reader :error

    def initialize(name)
      @name = checked(name)
      @probes = {}
      @error = Probescope.unavailable_reason
      @native = Native::Provider.new(@name) unless @error
      Provider.strict = Provider.strict?
    end

    # Adds a probe and returns it. The provider must not be loaded.
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

    # Makes the probes visible to tracers. Returns false on failure: see #error.
    def load
      return false unless @native

      @error = @native.load
      @error.nil?
    end

    # Hides the probes from tracers. They can still be fired, without effect. More probes can be
    # added then, and the provider can be loaded again.
    def unload = @native ? @native.unload : true

    # The file by which a tracer reaches every process with this provider; nil when there is none.
    def path = @native&.path

    # How many calls of fire had wrong arguments.
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
