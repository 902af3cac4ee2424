package cli

import (
	"context"
	"flag"
	"fmt"
	"io"
	"strings"
)

// completionCommand is a function, since it lists the commands, of which it is one.
func completionCommand() command {
	return command{
		name: "completion", args: "bash|zsh|fish", doc: "prints a completion script for a shell",
		help: `
Examples:
  source <(lowerdump completion bash)
  lowerdump completion zsh > "${fpath[1]}/_lowerdump"
  lowerdump completion fish > ~/.config/fish/completions/lowerdump.fish`,
		run: func(_ context.Context, t tool, args []string) error {
			names, err := parse("completion", new(noFlags), args)
			if err != nil {
				return err
			}
			write := map[string]func(io.Writer, completions) error{"bash": writeBash, "zsh": writeZsh, "fish": writeFish}
			if len(names) != 1 || write[names[0]] == nil {
				return usagef("name a shell: bash, zsh or fish")
			}
			return write[names[0]](t.out, t.completions())
		},
	}
}

// noFlags are the flags of a command without any.
type noFlags struct{}

func (noFlags) define(*flag.FlagSet) {}

// completions is what can be completed.
type completions struct {
	commands  []completed
	pipelines []string // named ones, then passes
}

// completed is a command with its flags.
type completed struct {
	name, doc string
	flags     []completedFlag
	words     []string // arguments other than files
}

type completedFlag struct {
	name, doc string
	value     bool // takes one
}

func (t tool) completions() completions {
	var out completions
	for _, c := range commands() {
		d := completed{name: c.name, doc: c.doc}
		if define := flagsOf[c.name]; define != nil {
			fs := flag.NewFlagSet(c.name, flag.ContinueOnError)
			define(fs)
			fs.VisitAll(func(f *flag.Flag) {
				if strings.HasPrefix(f.Usage, hidden) {
					return
				}
				_, usage := flag.UnquoteUsage(f)
				b, ok := f.Value.(interface{ IsBoolFlag() bool })
				d.flags = append(d.flags, completedFlag{f.Name, usage, !ok || !b.IsBoolFlag()})
			})
		}
		if c.name == "completion" {
			d.words = []string{"bash", "zsh", "fish"}
		}
		out.commands = append(out.commands, d)
	}
	help := completed{name: "help", doc: "explains a command"}
	for _, c := range out.commands {
		help.words = append(help.words, c.name)
	}
	out.commands = append(out.commands, help)
	for _, p := range t.passes().Pipelines() {
		out.pipelines = append(out.pipelines, p.Name)
	}
	for _, p := range t.passes().Passes() {
		out.pipelines = append(out.pipelines, p.Name)
	}
	return out
}

// spelled is a flag as it is typed: one that takes a value ends in =.
func (f *completedFlag) spelled() string {
	if f.value {
		return "-" + f.name + "="
	}
	return "-" + f.name
}

func writeBash(w io.Writer, c completions) error {
	var names []string
	var b strings.Builder
	for _, d := range c.commands {
		names = append(names, d.name)
		words := d.words
		for _, f := range d.flags {
			words = append(words, f.spelled())
		}
		fmt.Fprintf(&b, "      %s) words=%s ;;\n", d.name, quoted(strings.Join(words, " ")))
	}
	_, err := fmt.Fprintf(w, `# source <(lowerdump completion bash)
_lowerdump() {
  local cur=${COMP_WORDS[COMP_CWORD]} flag= words=
  if [ "$cur" = = ]; then
    cur= flag=${COMP_WORDS[COMP_CWORD-1]}
  elif [ "${COMP_WORDS[COMP_CWORD-1]}" = = ]; then
    flag=${COMP_WORDS[COMP_CWORD-2]}
  fi
  if [ "$COMP_CWORD" -eq 1 ]; then
    words=%s
  elif [ "$flag" = -passes ]; then
    words=%s
  elif [ -z "$flag" ]; then
    case ${COMP_WORDS[1]} in
%s    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
  case ${COMPREPLY[0]} in
    *=) compopt -o nospace 2>/dev/null ;;
  esac
}
complete -o default -F _lowerdump lowerdump
`, quoted(strings.Join(names, " ")), quoted(strings.Join(c.pipelines, " ")), b.String())
	return err
}

func writeZsh(w io.Writer, c completions) error {
	described := func(name, doc string) string { return quoted(strings.ReplaceAll(name, ":", `\:`) + ":" + doc) }
	var names []string
	var b strings.Builder
	for _, d := range c.commands {
		names = append(names, described(d.name, d.doc))
		var flags []string
		for _, f := range d.flags {
			flags = append(flags, described(f.spelled(), f.doc))
		}
		fmt.Fprintf(&b, "    %s) flags=(%s) list=(%s) ;;\n", d.name, strings.Join(flags, " "), strings.Join(d.words, " "))
	}
	_, err := fmt.Fprintf(w, `#compdef lowerdump
_lowerdump() {
  local -a list flags
  if (( CURRENT == 2 )); then
    list=(%s)
    _describe -t commands command list
    return
  fi
  if compset -P '-passes='; then
    list=(%s)
    _describe -t pipelines pipeline list
    return
  fi
  case $words[2] in
%s  esac
  if [[ $PREFIX == -* ]]; then
    _describe -t flags flag flags -S ''
  elif (( $#list )); then
    _describe -t arguments argument list
  else
    _files
  fi
}
compdef _lowerdump lowerdump
`, strings.Join(names, " "), strings.Join(c.pipelines, " "), b.String())
	return err
}

func writeFish(w io.Writer, c completions) error {
	var b strings.Builder
	for _, d := range c.commands {
		fmt.Fprintf(&b, "complete -c lowerdump -n __fish_use_subcommand -f -a %s -d %s\n", d.name, quoted(d.doc))
		in := quoted("__fish_seen_subcommand_from " + d.name)
		if len(d.words) > 0 {
			fmt.Fprintf(&b, "complete -c lowerdump -n %s -f -a %s\n", in, quoted(strings.Join(d.words, " ")))
		}
		for _, f := range d.flags {
			value := ""
			if f.name == "passes" {
				value = " -x -a " + quoted(strings.Join(c.pipelines, " "))
			} else if f.value {
				value = " -r"
			}
			fmt.Fprintf(&b, "complete -c lowerdump -n %s -o %s%s -d %s\n", in, f.name, value, quoted(f.doc))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// quoted is a word in single quotes, as all three shells read it.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
