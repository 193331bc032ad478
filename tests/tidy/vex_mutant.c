/* SPDX-License-Identifier: Apache-2.0
 *
 * Plain code, compiled with -mavx2: what tests/tidy/vex.py must flag. */
void pn_vex_mutant(float* a, const float* b, int n) {
  for (int i = 0; i < n; ++i) a[i] += b[i];
}
