# frozen_string_literal: true

require "json"
require "json_schemer"

module Support
  # docs/schema, more strictly than for users: here, an unknown field is a mistake.
  module Schemas
    module_function

    # Returns complaints about one or more objects; none if they fit. command: whose schema.
    def complaints(command, *objects)
      schema = (@schemas ||= {})[command] ||= JSONSchemer.schema(strict(JSON.parse(File.read(path(command)))))
      objects.flat_map do |object|
        schema.validate(object).map { |error| "#{command}#{error["data_pointer"]}: #{error["error"]}" }
      end
    end

    def path(command) = File.join(ROOT, "docs/schema/#{command}.json")

    def strict(schema)
      return schema.map { |one| strict(one) } if schema.is_a?(Array)
      return schema unless schema.is_a?(Hash)

      inner = schema.transform_values { |value| strict(value) }
      open = inner["properties"].is_a?(Hash) && !inner.key?("additionalProperties")
      open ? inner.merge("additionalProperties" => false) : inner
    end
  end
end

# Matches one or more objects that a command printed against its schema in docs/schema.
RSpec::Matchers.define :fit_the_schema_of do |command|
  match do |objects|
    (@complaints = Support::Schemas.complaints(command, *(objects.is_a?(Array) ? objects : [objects]))).empty?
  end
  failure_message { @complaints.first(10).join("\n") }
end
