# frozen_string_literal: true

# Options that let a Ruby outside the bundle load the OpenTelemetry gems, for the specs that trace
# an application with OpenTelemetry.
module OpenTelemetryGems
  # An old API, which keeps its context in another place. bin/setup installs it.
  OLD_API = File.join(Support::ROOT, "tmp/opentelemetry-1.4")

  module_function

  # ["-I...", ...] for the API and the SDK of the bundle.
  def options(name = "opentelemetry-sdk")
    with_dependencies(name).flat_map(&:full_require_paths).map { |path| "-I#{path}" }
  end

  # The old API requires logger, which is an ordinary gem from Ruby 4.0 on.
  def old_options
    logger = with_dependencies("opentelemetry-sdk").select { |gem| gem.name == "logger" }
    logger = logger.flat_map(&:full_require_paths)
    [*Dir[File.join(OLD_API, "gems/*/lib")], *logger].map { |path| "-I#{path}" }
  end

  def with_dependencies(name)
    gem = Gem.loaded_specs.fetch(name)
    [gem, *gem.runtime_dependencies.flat_map { |dependency| with_dependencies(dependency.name) }].uniq
  end
end
