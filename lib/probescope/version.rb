# frozen_string_literal: true

module Probescope
  VERSION = "0.1.0"
end
