import type { Family } from "./families.ts";

/** Metrics as text, in the format of its content type. */
export interface Exposition {
  readonly contentType: string;
  readonly text: string;
}

/** Writes metrics in Prometheus text format; the library is loaded on first use. */
export async function exposition(families: readonly Family[]): Promise<Exposition> {
  const { Counter, Gauge, Registry } = await import("prom-client");
  // One registry per scrape, so that series that ended do not linger.
  const registry = new Registry();
  for (const { name, help, type, samples } of families) {
    const labelNames = Object.keys(samples[0]?.labels ?? {});
    const options = { name, help, labelNames, registers: [registry] };
    if (type === "counter") {
      const counter = new Counter(options);
      for (const { labels, value } of samples) counter.inc({ ...labels }, value);
    } else {
      const gauge = new Gauge(options);
      for (const { labels, value } of samples) gauge.set({ ...labels }, value);
    }
  }
  return { contentType: registry.contentType, text: await registry.metrics() };
}
