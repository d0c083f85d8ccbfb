# frozen_string_literal: true

require "spec_helper"
require "support/shared/hooks_come_in"
%w[language ledger].each { |name| require_relative "truth/support/#{name}" }

RSpec.describe "Hooks", :bpf do
  Truth::LANGUAGES.each do |language|
    context "of #{language.name}", *(:python if language.python?) do
      include_examples "hooks come in", language
    end
  end
end
