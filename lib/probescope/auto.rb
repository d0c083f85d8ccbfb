# frozen_string_literal: true

# Loads and installs: require "probescope/auto", or RUBYOPT=-rprobescope/auto. On a Ruby that it
# cannot work on it does nothing, and `Probescope.status` and `probescope doctor` say why.
require_relative "../probescope"

Probescope.install || Probescope.complain_of_checkout
