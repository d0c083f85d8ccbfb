# frozen_string_literal: true

# Fills the comments of generated files within WIDTH columns.
module GeneratedComments
  WIDTH = 100

  module_function

  # The lines of a text, each with the prefix, such as "    # ". column: where the prefix begins, if
  # the generator indents the lines later.
  def lines(text, prefix, column: 0)
    room = WIDTH - column - prefix.size
    filled = text.split.each_with_object([]) do |word, done|
      if done.any? && done.last.size + 1 + word.size <= room
        done.last << " #{word}"
      else
        done << +word
      end
    end
    filled.map { |line| "#{prefix}#{line}" }
  end

  # A comment for Ruby or Python.
  def hash(text, column: 0) = lines(text, "# ", column: column).join("\n")

  # A declaration in C with its comment: in the same line if there is room, else above.
  def c(declaration, text)
    line = "#{declaration} /* #{text} */"
    return line if line.size <= WIDTH

    indent = declaration[/\A */]
    above = "#{indent}/* #{text} */"
    if above.size > WIDTH
      above = ["#{indent}/*", *lines(text, "#{indent} * "), "#{indent} */"].join("\n")
    end
    "#{above}\n#{declaration}"
  end
end
