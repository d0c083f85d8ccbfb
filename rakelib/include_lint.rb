# frozen_string_literal: true

require "pathname"
require "tsort"

# Checks what the C files of ext include. Returns complaints, one line each.
# docs/decisions/221-folders-of-the-core.md says what each folder is for.
class IncludeLint
  # Folders of ext from the lowest layer to the highest. A file includes files of its own folder and
  # of lower layers. Folders in one layer do not include each other.
  LAYERS = [%w[core/base], %w[libstapsdt], %w[core/vm], %w[core/usdt], %w[core/table], %w[core/calls],
            %w[core/context], %w[core/features], %w[core/agent], %w[ruby python]].freeze
  VMS = %w[ruby python].freeze
  VM_HEADER = %r{\A(ruby\.h|ruby/|Python\.h|cpython/|internal/pycore_|frameobject\.h|opcode\.h)}
  # Tests include what they like.
  TESTS = %w[core/test libstapsdt/test].freeze
  # Includes of a higher layer that remain, with the reason. {file => {included file => reason}}
  EXCEPTIONS = {}.freeze
  INCLUDE = /^[ \t]*#[ \t]*include[ \t]+["<]([^">]+)[">]/

  # The modules and what they include: a header and the source of the same name are one module.
  class Graph
    include TSort

    def initialize(includes) = @includes = includes
    def tsort_each_node(&block) = @includes.each_key(&block)
    def tsort_each_child(node, &block) = @includes.fetch(node, []).each(&block)
    def circles = strongly_connected_components.select { |modules| modules.size > 1 }
  end

  # root: the folder ext.
  def initialize(root, exceptions: EXCEPTIONS)
    @exceptions = exceptions
    @files = Dir.glob("**/*.{c,h}", base: root).sort.reject { |file| TESTS.include?(File.dirname(file)) }
    @includes = @files.to_h { |file| [file, File.read(File.join(root, file)).scan(INCLUDE).flatten] }
  end

  def size = @files.size

  def complaints
    [*unknown_folders, *circles, *upward_includes, *unused_exceptions, *vm_headers, *equal_names]
  end

  private

  def layer(file) = LAYERS.index { |folders| folders.include?(File.dirname(file)) }
  def core?(file) = !VMS.include?(File.dirname(file))

  # Returns the file of ext that a file includes by this name, or nil: then it is a header of a VM or
  # of the system. The compilers search the same folders in the same order.
  def find(file, name)
    [File.dirname(file), "core", "libstapsdt"].map { |folder| Pathname(folder).join(name).cleanpath.to_s }
                                              .find { |path| @includes.key?(path) }
  end

  # [[file, the file that it includes], ...]
  def edges
    @edges ||= @includes.flat_map do |file, names|
      names.filter_map { |name| find(file, name) }.map { |included| [file, included] }
    end
  end

  def unknown_folders
    @files.reject { |file| layer(file) }.map { |file| "#{file}: its folder is in no layer of LAYERS" }
  end

  def circles
    stem = ->(file) { file.sub(/\.[ch]\z/, "") }
    modules = @files.to_h { |file| [stem[file], []] }
    edges.each { |file, included| modules[stem[file]] |= [stem[included]] }
    Graph.new(modules).circles.map { |circle| "#{circle.sort.join(", ")}: they include each other" }
  end

  def upward
    edges.select do |file, included|
      folder = File.dirname(file)
      folder != File.dirname(included) && layer(file) && layer(included) && layer(file) <= layer(included)
    end
  end

  def upward_includes
    upward.reject { |file, included| @exceptions.dig(file, included) }
          .map { |file, included| "#{file}: includes #{included}, which is not in a lower layer" }
  end

  def unused_exceptions
    excepted = @exceptions.flat_map { |file, reasons| reasons.keys.map { |included| [file, included] } }
    (excepted - upward).map { |file, included| "#{file}: the exception for #{included} is not needed" }
  end

  def vm_headers
    @files.select { |file| core?(file) }.flat_map do |file|
      @includes[file].grep(VM_HEADER).map { |name| "#{file}: includes #{name} of a VM" }
    end
  end

  # mkmf puts the objects of all folders into one.
  def equal_names
    sources = @files.select { |file| file.end_with?(".c") && File.dirname(file) != "python" }
    sources.group_by { |file| File.basename(file) }.values.select { |files| files.size > 1 }
           .map { |files| "#{files.join(", ")}: have the same name" }
  end
end
