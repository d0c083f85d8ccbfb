# frozen_string_literal: true

require "open3"

module Support
  # The Python whose processes the specs trace: PYTHON, or python3, with the package of this
  # checkout, which bin/setup builds in place.
  module Python
    PACKAGE = File.join(ROOT, "python")
    # A folder whose sitecustomize.py loads the package into a Python.
    LOADER = File.join(__dir__, "python")

    module_function

    def interpreter = ENV.fetch("PYTHON", "python3")
    def env(loaded: true) = {"PYTHONPATH" => [*(LOADER if loaded), PACKAGE].join(":")}

    # Path of the package's extension, or nil if it was not built.
    def library
      return @library if defined?(@library)

      code = "from probescope import _native; print(_native.__file__)"
      out, _, status = Open3.capture3(Support.plain_env.merge(env(loaded: false)), interpreter, "-c", code,
                                      unsetenv_others: true)
      @library = status.success? ? out.chomp : nil
    end

    # "3.13.0"
    def full_version
      @full_version ||= IO.popen([interpreter,
                                  "-c", "import platform; print(platform.python_version())"], &:read).chomp
    end

    # For `before`. Without the extension the example fails in CI, and is skipped elsewhere.
    def require!
      return if library

      reason = "the Python extension is not built for #{interpreter}: bin/setup specs builds it"
      raise reason if ENV["CI"]

      yield reason
    end
  end
end
