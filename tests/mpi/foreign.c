/* SPDX-License-Identifier: Apache-2.0 */
/* A library with the name and the functions of an MPI, and an ABI that nobody knows (mpi_opening --load). */
int PMPI_Init_thread(int* argc, char*** argv, int wanted, int* provided) {
  (void)argc, (void)argv;
  *provided = wanted;
  return 0;
}
