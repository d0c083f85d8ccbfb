# frozen_string_literal: true

require "json"
require "yaml"

# Generates a JSON Schema for each command from docs/schema/schemas.yml. Each schema is complete, so
# that no validator has to find a second file.
class SchemaGenerator
  FOLDER = "docs/schema"
  SOURCE = "#{FOLDER}/schemas.yml".freeze
  DIALECT = "https://json-schema.org/draft/2020-12/schema"
  TYPES = {
    "string" => {type: "string"}, "integer" => {type: "integer"}, "number" => {type: "number"},
    "boolean" => {type: "boolean"}, "share" => {type: "number", minimum: 0},
    "ns" => {type: "integer", minimum: 0}, "count" => {type: "integer", minimum: 0},
    "pid" => {type: "integer", minimum: 1},
    "time" => {type: "string", pattern: '^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{6}Z$'}
  }.freeze
  # The parts of an object of each kind, in this order. "more" is the command's own part.
  KINDS = {"table" => %w[head interval more table], "line" => %w[head interval more], "event" => %w[more],
           "list" => %w[head more list], "recording" => %w[head recording more],
           "diff" => %w[head diff more]}.freeze

  def self.write(root)
    generator = new(File.read(File.join(root, SOURCE)))
    [*generator.commands, *generator.documents].each do |name|
      File.write(File.join(root, path(name)), generator.text(name))
    end
  end

  def self.path(command) = "#{FOLDER}/#{command}.json"

  def initialize(yaml)
    @definition = YAML.safe_load(yaml)
  end

  def commands = @definition.fetch("commands").keys
  def documents = @definition.fetch("documents").keys

  # The text of the schema of a command or of a document.
  def text(name)
    "#{JSON.pretty_generate(documents.include?(name) ? document(name) : schema(name))}\n"
  end

  def document(name)
    definition = @definition.dig("documents", name)
    @own = {"schema" => {const: version}}
    {"$schema": DIALECT, "$id": "urn:probescope:schema:#{version}:#{name}", title: definition.fetch("title"),
     description: definition.fetch("about"), **object(definition.fetch("fields"))}
  end

  def schema(command)
    definition = @definition.dig("commands", command)
    {"$schema": DIALECT, "$id": "urn:probescope:schema:#{version}:#{command}",
     title: "probescope #{command} --json", description: definition.fetch("about"),
     **object(fields(command, definition))}
  end

  private

  def version = @definition.fetch("schema")

  # {name => [type, meaning, "optional"?] or a nested type}. @own: types that differ by command.
  def fields(command, definition)
    @own = {"schema" => {const: version}, "command" => {const: command}, "rows" => nil}
    @own["rows"] = rows(definition)
    KINDS.fetch(definition.fetch("kind")).map do |part|
      part == "more" ? definition.fetch("more", {}) : @definition.fetch(part)
    end.reduce(:merge)
  end

  def rows(definition)
    row = definition["row"] or return
    parts, own = row.partition { |name, _| name == "parts" }
    shared = parts.flat_map(&:last).map { |name| @definition.dig("parts", name) }
    list(object([*shared, own.to_h].reduce(:merge)))
  end

  def object(fields)
    {type: "object", properties: fields.transform_values { |field| property(field) },
     required: fields.reject { |_, field| field.is_a?(Array) && field[2] == "optional" }.keys}
  end

  def list(items) = {type: "array", items: items}

  def property(field)
    return nested(field) if field.is_a?(Hash)

    name, about = field
    {description: about, **type(name)}
  end

  def type(name)
    base = name.delete_suffix("?")
    found = @own[base] || TYPES[base] ||
            nested(@definition.dig("types", base) || raise("there is no type #{base}"))
    name.end_with?("?") ? found.merge(type: [found.fetch(:type), "null"]) : found
  end

  def nested(definition)
    kind, fields = definition.first
    case kind
    when "object" then object(fields)
    when "list" then list(fields.is_a?(Hash) ? object(fields) : type(fields))
    when "map" then {type: "object", additionalProperties: property(fields)}
    end
  end
end
