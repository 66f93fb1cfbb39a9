/** Where scripts/test keeps compiled code, for the environment of a program that gets no other variables. */
export function compileCache(): Readonly<Record<string, string>> {
  const { NODE_COMPILE_CACHE: cache } = process.env;
  return cache === undefined ? {} : { NODE_COMPILE_CACHE: cache };
}
