type Key = string | symbol;

/**
 * Gives `Reflect` the three metadata functions that the certificate library's injector insists on. They hold what its decorators
 * say about its own classes and nothing else; where another polyfill is present, it stays.
 */
export function installReflectMetadata(): void {
  if ("getMetadata" in Reflect) return;
  const entries = new WeakMap<object, Map<Key, unknown>>();
  const own = (key: Key, target: object): unknown => entries.get(target)?.get(key);
  const inherited = (key: Key, target: object): unknown => {
    for (let at: object | null = target; at !== null; at = Reflect.getPrototypeOf(at)) {
      if (entries.get(at)?.has(key) === true) return own(key, at);
    }
    return undefined;
  };
  const define = (key: Key, value: unknown, target: object): void => {
    const map = entries.get(target) ?? new Map<Key, unknown>();
    entries.set(target, map.set(key, value));
  };
  const functions = { getOwnMetadata: own, getMetadata: inherited, defineMetadata: define };
  for (const [name, value] of Object.entries(functions)) {
    Object.defineProperty(Reflect, name, { value, configurable: true, writable: true });
  }
}
