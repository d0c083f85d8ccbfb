# frozen_string_literal: true

# A haulier's list: units in units, each with a name, and in them goods with their weight in kg.
#
#   (container C-7 (pallet P-1 (crate K-3 tea 12 rice 40)) (pallet P-2 salt 9))
class Manifest
  # The text is not a manifest.
  class Invalid < StandardError; end

  # Text to read from, a StringIO or a String. This is the first mistake: a String has no #string
  # and raises a NoMethodError, whose backtrace has every frame below. `rescue` discards it.
  class Source
    def initialize(from)
      @text = (from.string rescue from)
    end

    def tokens = @text.scan(/[()]|[^()\s]+/)
    def name = @text.to_s
    def weight = Integer(@text, 10)
    def weight? = @text.match?(/\A\d+\z/)
  end

  # The same with a check first.
  class CarefulSource < Source
    def initialize(from)
      @text = from.respond_to?(:string) ? from.string : from
    end
  end

  # goods: [[name, kg], ...]; units: the Units inside.
  Unit = Struct.new(:kind, :name, :goods, :units) do
    def weight = goods.sum(&:last) + units.sum(&:weight)
    def items = goods.size + units.sum(&:items)
    def levels = 1 + (units.map(&:levels).max || 0)
  end

  def initialize(source = Source)
    @source = source
  end

  # Returns the outermost Unit of the text. Raises Invalid.
  def parse(text)
    @tokens = @source.new(text).tokens
    raise Invalid, "a manifest begins with a parenthesis" unless @tokens.shift == "("

    unit.tap { raise Invalid, "there is text behind the last parenthesis" if @tokens.any? }
  end

  private

  # Reads from after a "(" to after its ")", and each nested unit in the same way.
  def unit
    Unit.new(word.name, word.name, [], []).tap do |unit|
      each_until(")") do |token|
        if token == "("
          unit.units << self.unit
        else
          unit.goods << [@source.new(token).name, kilograms]
        end
      end
    end
  end

  def each_until(last)
    while (token = @tokens.shift) != last
      yield token || raise(Invalid, "a parenthesis is open at the end")
    end
  end

  def word = @source.new(@tokens.shift || raise(Invalid, "a name is missing at the end"))

  def kilograms
    weight = word
    raise Invalid, "#{weight.name.inspect} is no weight" unless weight.weight?

    weight.weight
  end
end
