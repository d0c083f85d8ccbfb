# frozen_string_literal: true

require_relative "bounds"
require_relative "opened"
require_relative "runners"

module Probescope
  module Tracing
    # The package that a process was started with: `python -m PACKAGE`, or a script that only starts
    # a package or a gem. Runs in the child that reads foreign processes (Foreign), because it opens
    # a file that the process chose.
    module EntryPoint
      PYTHON = /\Apython[\d.]*t?\z/
      RUBY = /\Aruby[\d.]*\z/
      # Options of the interpreters that take the next word, and those with which there is no script.
      TAKES = {PYTHON => /\A-[A-Za-z]*[WXQ]\z/, RUBY => /\A-[ICErxSF]\z/}.freeze
      NO_SCRIPT = {PYTHON => /\A-[A-Za-z]*c/, RUBY => /\A-e/}.freeze
      MODULE = /\A-[A-Za-z]*m(.*)\z/
      NAME = /\A[A-Za-z_][\w.-]*\z/
      IMPORT = /^[ \t]*(?:from[ \t]+(\w+)[\w.]*[ \t]+import\b|import[ \t]+(\w+))/
      # What scripts that start a package import besides it.
      BESIDE = %w[re sys os importlib importlib_metadata pkg_resources __future__].freeze
      # The distribution that a script of setuptools starts; its package mostly has the same name.
      REQUIRES = /^__requires__\s*=\s*["']([\w.-]+)/
      BIN_PATH = /bin_path\(?\s*["']([\w.-]+)["']/
      # The script of a gem: gems/NAME-VERSION/exe/SCRIPT. gems/ruby-VERSION is no gem, but RVM's folder
      # for the gems of a version of Ruby.
      IN_GEM = %r{/gems/(?!(?:j|truffle)?ruby-\d)([\w.-]+?)-\d[\w.-]*/(?:exe|bin)/[^/]+\z}

      module_function

      # Globs of the package's files; [] where the process was not started with a package, or with one
      # of RUNNERS.
      def globs(pid)
        interpreter, *words = command_line(pid)
        case File.basename(interpreter.to_s)
        when PYTHON then python(package(pid, words))
        when RUBY then ruby(gem(pid, words))
        else []
        end
      end

      def python(name) = named(name) { %w[site dist].map { |kind| "*/#{kind}-packages/#{name}/*" } }
      def ruby(name) = named(name) { ["*/gems/#{name}-*/*"] }

      def named(name) = name&.match?(NAME) && !RUNNERS.include?(name) ? yield : []

      def package(pid, words)
        path, of = script(words, PYTHON)
        return of if of
        return unless path && File.basename(File.dirname(path)) == "bin"

        text = read(pid, path)
        text[REQUIRES, 1]&.then { |name| name.downcase.tr("-.", "_") } ||
          (text.scan(IMPORT).map { |names| names.compact.first } - BESIDE).first
      end

      def gem(pid, words)
        path, = script(words, RUBY)
        return unless path

        path[IN_GEM, 1] || read(pid, path)[BIN_PATH, 1]
      end

      # [path of the script or nil, name of the module or nil]
      def script(words, language)
        until words.empty?
          word = words.shift
          return [word] unless word.start_with?("-")
          return [] if word.match?(NO_SCRIPT.fetch(language))

          name = word[MODULE, 1] if language == PYTHON
          return [nil, (name.empty? ? words.shift : name)[/\A\w+/]] if name

          words.shift if word.match?(TAKES.fetch(language))
        end
        []
      end

      def command_line(pid)
        File.open("/proc/#{pid}/cmdline", "rb") { |io| io.read(Bounds::COMMAND_LINE_BYTES) }.to_s.split("\0")
      end

      # The begin of the script; "" where it cannot be read. No part of its path may be a link.
      def read(pid, path)
        whole = path.start_with?("/") ? path : File.join(File.readlink("/proc/#{pid}/cwd"), path)
        io = Opened.beneath(pid, whole)
        io.read(Bounds::SCRIPT_BYTES).to_s
      rescue SystemCallError
        ""
      ensure
        io&.close
      end
    end
  end
end
