import { copyFileSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";

export type Tool = "ip" | "nft";

/** A moment in one run of a tool: its start, its end, or a call that sends to the kernel. */
export interface ChildPoint {
  readonly tool: Tool;
  /** Number of the run of the tool since the plan was made, from 1. */
  readonly run: number;
  readonly moment: "start" | "end" | { readonly call: string; readonly nth: number };
}

/** Names of the system calls by which a tool sent to the kernel, in order. */
export interface ToolRun {
  readonly tool: Tool;
  readonly run: number;
  readonly args: string;
  readonly calls: readonly string[];
}

const TOOLS: readonly Tool[] = ["ip", "nft"];

/** The agent's tools, each behind a script that makes it fail or die as a test plans. */
export class WrappedTools {
  readonly #dir: string;

  /** @param dir a directory of its own, created here. */
  constructor(dir: string) {
    this.#dir = dir;
    mkdirSync(join(dir, "real"), { recursive: true });
    for (const tool of TOOLS) {
      copyFileSync(`/usr/sbin/${tool}`, join(dir, "real", tool));
      writeFileSync(join(dir, tool), wrapper(dir, tool), { mode: 0o755 });
    }
  }

  /** A command prefix for a command line with a mount namespace of its own. */
  get within(): readonly string[] {
    const mounts = TOOLS.map((tool) => `mount --bind ${join(this.#dir, tool)} /usr/sbin/${tool}`);
    return ["sh", "-c", `${mounts.join(" && ")} && exec "$0" "$@"`];
  }

  /** Lets every tool run normally. */
  leave(): void {
    for (const name of readdirSync(this.#dir)) {
      if (/^(?:plan|count|trace|args)\b/.test(name)) rmSync(join(this.#dir, name));
    }
  }

  /** Records what every tool sends to the kernel from now on. */
  record(): void {
    this.#plan({ MODE: "record" });
  }

  /** Returns what was sent since `record`. */
  recorded(): readonly ToolRun[] {
    return TOOLS.flatMap((tool) =>
      Array.from({ length: this.count(tool) }, (_, at) => at + 1).flatMap((run): ToolRun[] => {
        const path = join(this.#dir, `trace.${tool}.${run}`);
        // A run that starts at this moment is not recorded yet; the change was done before.
        if (!existsSync(path)) return [];
        const calls = [...readFileSync(path, "utf8").matchAll(/^(?:\d+ +)?(sendmsg|sendto)\(/gm)];
        const args = readFileSync(join(this.#dir, `args.${tool}.${run}`), "utf8").trim();
        return [{ tool, run, args, calls: calls.map(([, name = ""]) => name) }];
      }),
    );
  }

  /** Returns the number of starts of a tool since the plan was made. */
  count(tool: Tool): number {
    const path = join(this.#dir, `count.${tool}`);
    return existsSync(path) ? Number(readFileSync(path, "utf8")) : 0;
  }

  /** Kills the agent and the tool at this moment. */
  killAt({ tool, run, moment }: ChildPoint, agent: number): void {
    const at = typeof moment === "string" ? { CALL: moment } : { CALL: moment.call, NTH: moment.nth };
    this.#plan({ MODE: "kill", TOOL: tool, RUN: run, AGENT: agent, ...at });
  }

  /** Makes the next change that a tool reads fail after this number of lines, this many times. */
  failAfter(tool: Tool, lines: number, times = 1): void {
    this.#plan({ MODE: "fail", TOOL: tool, LINES: lines, TIMES: times, SCRIPT: ":" });
  }

  /** After the planned failure, every input of a tool with a matching line (basic regular expressions) waits until `letGo`. */
  hold(lines: string): void {
    writeFileSync(join(this.#dir, "hold"), `${lines}\n`);
  }

  /** Continues held inputs. */
  release(): void {
    rmSync(join(this.#dir, "hold"), { force: true });
  }

  /** Interrupts the next change that a tool reads after this number of lines, runs a shell line, and continues. */
  interruptAfter(tool: Tool, lines: number, script: string): void {
    this.#plan({ MODE: "interrupt", TOOL: tool, LINES: lines, TIMES: 1, SCRIPT: script });
  }

  #plan(values: Readonly<Record<string, string | number>>): void {
    this.leave();
    const quoted = (value: string | number): string => `'${String(value).replaceAll("'", "'\\''")}'`;
    const lines = Object.entries(values).map(([name, value]) => `${name}=${quoted(value)}\n`);
    writeFileSync(join(this.#dir, "plan"), lines.join(""));
  }
}

/** A change comes on standard input: lines for `ip -batch`, a file for `nft -f`; checks and queries pass. */
function wrapper(dir: string, tool: Tool): string {
  const verbs = "add|set|replace|prepend|append|delete|change|property";
  const isChange =
    tool === "ip"
      ? `[ "$1" = -batch ] && grep -qE '^(link|address|route|rule) +(${verbs}) ' "$in"`
      : `case " $* " in *" -c "*|*list*) false;; esac`;
  return `#!/bin/sh
d=${dir} tool=${tool} real=${dir}/real/${tool}
[ -f $d/plan ] || exec $real "$@"
. $d/plan
# A check changes nothing, and may belong to the very change that fails.
await_leave() { case " $* " in *" -c "*) return ;; esac; while [ -f $d/count.done ] && [ -f $d/hold ] && grep -q -f $d/hold $in; do sleep 0.05; done; }
n=$(($(cat $d/count.$tool 2>/dev/null || echo 0) + 1))
echo $n > $d/count.$tool
echo "$*" > $d/args.$tool.$n
case "$MODE $TOOL" in
"record ")
  exec strace -f -qq -o $d/trace.$tool.$n -e trace=sendmsg,sendto -e signal=none $real "$@" ;;
"kill $tool")
  [ $n -eq $RUN ] || exec $real "$@"
  in=$d/input.$tool.$$; cat > $in
  kill -STOP $AGENT
  case $CALL in
  start) ;;
  end) $real "$@" < $in > /dev/null 2>&1 ;;
  *) strace -f -qq -o /dev/null -e trace=$CALL -e inject=$CALL:signal=SIGKILL:when=$NTH $real "$@" < $in > /dev/null 2>&1 ;;
  esac
  touch $d/killed
  kill -KILL $AGENT
  exit 137 ;;
"fail $tool" | "interrupt $tool")
  in=$d/input.$tool.$$; cat > $in
  done=$(cat $d/count.done 2>/dev/null || echo 0)
  if [ -s $in ] && [ $done -lt $TIMES ] && ${isChange}; then
    echo $(($done + 1)) > $d/count.done
    [ $tool = nft ] || head -n $LINES $in | $real "$@" || exit
    eval "$SCRIPT"
    if [ $MODE = fail ]; then echo "RTNETLINK answers: Cannot allocate memory" >&2; exit 1; fi
    [ $tool = nft ] || { tail -n +$(($LINES + 1)) $in | exec $real "$@"; exit; }
  fi
  await_leave "$@"
  exec $real "$@" < $in ;;
"fail "* | "interrupt "*)
  [ -f $d/hold ] || exec $real "$@"
  in=$d/input.$tool.$$; cat > $in
  await_leave "$@"
  exec $real "$@" < $in ;;
*) exec $real "$@" ;;
esac
`;
}
