# Sourced by the programs of this folder. The comment at the head of a program is its usage text.

# misuse SENTENCE: reports a wrong command line and exits with 2.
misuse() {
  echo "scripts/${0##*/}: $1; --help shows the usage" >&2
  exit 2
}

# usage: prints the comment at the head of the program.
usage() { awk 'NR > 1 { if (!/^#/) exit; sub(/^# ?/, ""); print }' "$0"; }

# check_options FLAGS VALUED ARGUMENT...: prints the usage and exits with 0 if an argument is --help, and refuses an option that is
# neither in FLAGS nor, with a value, in VALUED. Called before the program changes its directory or does anything else.
check_options() {
  local flags=" $1 " valued=" $2 " argument
  shift 2
  while [ $# -gt 0 ]; do
    argument=$1
    shift
    case $argument in
      -h | --help)
        usage
        exit 0
        ;;
      --) return ;;
      -*)
        if [[ $flags == *" $argument "* ]]; then continue; fi
        [[ $valued == *" ${argument%%=*} "* ]] || misuse "unknown option '$argument'"
        [[ $argument == *=* ]] && continue
        [ $# -gt 0 ] || misuse "$argument needs a value"
        shift
        ;;
    esac
  done
}
