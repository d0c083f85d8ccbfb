# frozen_string_literal: true

# These tasks need the network, so bin/test does not run them. spec/deployment_spec.rb checks the
# rest.
namespace :deployment do
  desc "Check the Kubernetes manifests against the API's schema (needs node and npm)"
  task :manifests do
    modules = File.expand_path("../tmp/manifests", __dir__)
    manifests = FileList[File.expand_path("../examples/kubernetes/*.yaml", __dir__)]
    mkdir_p modules, verbose: false
    sh "npm", "install", "--silent", "--no-save", "--prefix", modules, "kubernetes-models@4", "js-yaml@4"
    chdir(modules, verbose: false) do
      sh "node", File.expand_path("../.ci/manifests.js", __dir__), *manifests, verbose: false
    end
  end

  desc "Run the steps of the Dockerfile in a chroot, and run the doctor there as the DaemonSet would " \
       "(as root, on Debian)"
  task(:image) { sh ".ci/image" }
end

desc "Check the files with which the bridge is deployed (as root; two minutes)"
task deployment: %w[deployment:manifests deployment:image]
