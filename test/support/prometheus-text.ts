/** One sample of a text in the format of Prometheus. */
export interface ReadSample {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

export interface ReadFamily {
  readonly help: string;
  readonly type: string;
  readonly samples: ReadSample[];
}

const LABEL = String.raw`[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*"`;
const SAMPLE = new RegExp(String.raw`^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(${LABEL}(?:,${LABEL})*)\})? (\S+)$`);

/** Parses a text as strictly as promtool: help and type once before the samples, no series twice, valid numbers. */
export function readPrometheusText(text: string): ReadonlyMap<string, ReadFamily> {
  if (!text.endsWith("\n")) throw new Error("the last line has no end");
  const families = new Map<string, ReadFamily>();
  const series = new Set<string>();
  let help: { readonly name: string; readonly text: string } | undefined;
  for (const line of text.split("\n").filter((line) => line !== "")) {
    const [, name = "", rest = ""] = /^# (?:HELP|TYPE) (\S+) (.+)$/.exec(line) ?? [];
    if (line.startsWith("# HELP ")) {
      help = { name, text: rest };
    } else if (line.startsWith("# TYPE ")) {
      if (families.has(name) || help?.name !== name) throw new Error(`type of ${name} in the wrong place`);
      families.set(name, { help: help.text, type: rest, samples: [] });
    } else {
      const [, sample = "", labels = "", number = ""] = SAMPLE.exec(line) ?? [];
      const family = families.get(sample);
      if (family === undefined || [...families.keys()].at(-1) !== sample) throw new Error(`no family for: ${line}`);
      const key = `${sample}{${labels}}`;
      if (series.has(key)) throw new Error(`twice: ${key}`);
      series.add(key);
      const value = number === "+Inf" ? Infinity : Number(number);
      if (Number.isNaN(value)) throw new Error(`no number: ${line}`);
      const pairs = [...labels.matchAll(/([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g)].map(([, label = "", raw = ""]) => [
        label,
        raw.replaceAll(/\\(.)/g, (_, one: string) => (one === "n" ? "\n" : one)),
      ]);
      family.samples.push({ name: sample, labels: Object.fromEntries(pairs) as Record<string, string>, value });
    }
  }
  return families;
}
