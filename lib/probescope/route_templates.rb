# frozen_string_literal: true

module Probescope
  # The route template of a request, from what frameworks of Rack leave in the env, with the path
  # that they are mounted below. Whatever is in there, nothing is raised: bytes are joined, and what
  # is no String is looked at for nothing but its type.
  module RouteTemplates
    # "/orders/:id(.:format)", and of Grape "/orders/:id(.json)"
    FORMAT = /\(\.[^()]*\)\z/n

    class << self
      # nil where none is known.
      def of(env)
        inner = grape(env["grape.routing_args"]) || sinatra(env["sinatra.route"])
        outer = rails(env)
        return outer unless inner

        # One that is mounted in Rails; the route of the mount is a template, too.
        "#{outer || prefix(env)}#{inner}"
      end

      private

      def grape(arguments)
        route = arguments[:route_info] if arguments.is_a?(Hash)
        path = route.path if route.respond_to?(:path)
        path.b.sub(FORMAT, "") if path.is_a?(String)
      end

      # "GET /labels/:number"
      def sinatra(route)
        route.b.split(" ", 2).last&.gsub("\\/", "/") if route.is_a?(String)
      end

      def rails(env)
        pattern = env["action_dispatch.route_uri_pattern"]
        return action(env["action_dispatch.request.path_parameters"]) unless pattern.is_a?(String)

        routes = env["action_dispatch.routes"]
        mounted = env[routes.env_key] if routes.respond_to?(:env_key) # an engine's own
        "#{mounted.is_a?(String) ? mounted.b : prefix(env)}#{pattern.b.sub(FORMAT, "")}"
      end

      # Rails before 7.1 says no more.
      def action(parameters)
        controller, action = parameters.values_at(:controller, :action) if parameters.is_a?(Hash)
        "#{controller}##{action}" if controller.is_a?(String) && action.is_a?(String)
      end

      def prefix(env)
        name = env["SCRIPT_NAME"]
        name.is_a?(String) ? name.b : ""
      end
    end
  end
end
