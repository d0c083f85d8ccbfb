# frozen_string_literal: true

module Probescope
  # The route template of a request, from what Rack frameworks leave in the env, with the path that
  # they are mounted below. Raises nothing, whatever the env holds: Strings are joined as bytes, and
  # of any other value only the type is checked.
  module RouteTemplates
    # The end of "/orders/:id(.:format)", or "/orders/:id(.json)" in Grape.
    FORMAT = /\(\.[^()]*\)\z/n
    # A part of Sinatra's pattern of several kinds: its kind, and the text with escapes.
    PART = /\w+:"((?:[^"\\]|\\.)*)"/n
    PARTS = /\A\(#{PART}(?: \+ #{PART})+\)\z/n

    class << self
      # Returns nil where no route template is known.
      def of(env)
        inner = grape(env["grape.routing_args"]) || sinatra(env["sinatra.route"])
        outer = rails(env)
        return outer unless inner

        # An application that is mounted in Rails. The route of the mount point is a template, too.
        "#{outer || prefix(env)}#{inner}"
      end

      private

      def grape(arguments)
        route = arguments[:route_info] if arguments.is_a?(Hash)
        path = route.path if route.respond_to?(:path)
        path.b.sub(FORMAT, "") if path.is_a?(String)
      end

      # "GET /labels/:number"; for a pattern of several kinds, as in a namespace,
      # 'GET (sinatra:"/desk" + regular:"/labels/(\\d+)")'
      def sinatra(route)
        return unless route.is_a?(String)

        path = route.b.split(" ", 2).last
        path = path.scan(PART).join.gsub(/\\(.)/n, '\1') if path&.match?(PARTS)
        path&.gsub("\\/", "/")
      end

      def rails(env)
        pattern = env["action_dispatch.route_uri_pattern"]
        return action(env["action_dispatch.request.path_parameters"]) unless pattern.is_a?(String)

        routes = env["action_dispatch.routes"]
        mounted = env[routes.env_key] if routes.respond_to?(:env_key) # routes of an engine
        "#{mounted.is_a?(String) ? mounted.b : prefix(env)}#{pattern.b.sub(FORMAT, "")}"
      end

      # Rails before 7.1 leaves no route pattern in the env.
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
