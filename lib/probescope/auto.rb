# frozen_string_literal: true

# Loads and installs probescope: require "probescope/auto", or RUBYOPT=-rprobescope/auto. On a Ruby
# that probescope cannot work on, this does nothing, and `Probescope.status` and `probescope doctor`
# give the reason.
require_relative "../probescope"

Probescope.install || Probescope.complain_of_checkout
