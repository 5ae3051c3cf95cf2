# Allocates in calls of many kinds. For each block it prints the bytes, and the calls as Ruby itself has them: names and
# lines, innermost first, without those of methods that are written in C.
KEPT = []
IN_C = %w[new each times map instance_eval next].freeze
$next = 100_000

# The next size, printed with the calls of the caller.
def note
  $next += 1000
  calls = caller_locations(1).reject { |at| IN_C.include?(at.base_label) }
  calls = calls.map { |at| "#{at.base_label}:#{at.lineno}" }
  puts "#{$next + 1} #{calls.join(';')}"
  $stdout.flush
  $next
end

def plain
  KEPT << "x" * note
end

class Cache
  KEPT << "x" * note

  def initialize
    @first = "x" * note
  end

  def insert
    [1].each { @second = "x" * note }
  end

  def self.build
    KEPT << "x" * note
    new
  end

  define_method(:defined) do
    KEPT << "x" * note
  end

  def method_missing(name, *)
    KEPT << "x" * note
  end

  def respond_to_missing?(*)
    true
  end

  class << self
    def of_singleton
      KEPT << "x" * note
    end
  end
end

module Tools
  module_function

  def help
    KEPT << "x" * note
  end

  class Inner < Cache
    def insert
      super
      KEPT << "x" * note
    end
  end
end

def deep(left)
  return deep(left - 1) if left > 0

  KEPT << "x" * note
end

def größe
  KEPT << "x" * note
end

def long_function(which)
  a = b = 1
  if which == 0
    a += 1
  elsif which == 1
    a += b
    KEPT << "x" * note
  else
    which.times do |k|
      begin
        KEPT << "x" * note if k == which - 1
      ensure
        a += 1
      end
    end
  end
  a
end

plain
cache = Cache.build
cache.insert
cache.defined
cache.missing
Cache.of_singleton
Tools.help
Tools::Inner.new.insert
deep(20)
deep(150)
größe
long_function(1)
long_function(5)
[3, 1].map { |n| KEPT << "x" * note if n == 1 }
KEPT << -> { "x" * note }.call
Cache.class_eval("def made\n  KEPT << 'x' * note\nend")
cache.made
cache.instance_eval { @third = "x" * note }
Thread.new { plain }.join
Fiber.new { plain }.resume
KEPT << Enumerator.new { |out| out << "x" * note }.next
puts "ready"
$stdout.flush
$stdin.gets
