# frozen_string_literal: true

namespace :abi do
  desc "Keep the programs and the probes of this version in spec/abi: " \
       "they must work with every later library"
  task :keep do
    folder = "spec/abi/#{Probescope::VERSION}"
    rm_rf folder
    mkdir_p folder
    cp Dir["providers/*.bt"] + ["providers/probescope.yml"], folder
  end
end
