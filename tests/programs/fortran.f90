! Broadcasts and sums of a Fortran program, with every number checked. DOOR selects the MPI's
! Fortran API: 1 mpif.h, 2 the module mpi, 3 the module mpi_f08; 0: the constants of MPICH's mpif.h,
! for a package without headers (Intel's run-time package). Prints `fortran ok`.
program fortran
#if DOOR == 3
    use mpi_f08
#elif DOOR == 2
    use mpi
#endif
    implicit none
#if DOOR == 1
    include 'mpif.h'
#elif DOOR == 0
    integer, parameter :: MPI_COMM_WORLD = int(z'44000000'), MPI_INTEGER = 1275069467, MPI_SUM = int(z'58000003')
    external :: MPI_Init, MPI_Comm_rank, MPI_Comm_size, MPI_Comm_dup, MPI_Bcast, MPI_Comm_free, MPI_Finalize, MPI_Allreduce, &
        MPI_Allgather, MPI_Barrier
#endif
#if DOOR == 3
    type(MPI_Comm) :: comm
#else
    integer :: comm
#endif
    integer, parameter :: rounds = 200
    integer, allocatable :: numbers(:)
    integer :: terms(50), sums(50)
    integer, allocatable :: all(:)
    integer :: error, rank, ranks, n, root, count, i

    call MPI_Init(error)
    call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
    call MPI_Comm_size(MPI_COMM_WORLD, ranks, error)
    do i = 1, 2
        call MPI_Comm_dup(MPI_COMM_WORLD, comm, error)
        do n = 1, rounds
            root = mod(n, ranks)
            count = n * 53
            allocate(numbers(count))
            numbers = -1
            if (rank == root) numbers = n * 7 + root
            call MPI_Bcast(numbers, count, MPI_INTEGER, root, comm, error)
            if (error /= 0 .or. any(numbers /= n * 7 + root)) then
                print *, 'fortran MISMATCH', rank, n, error
                stop 1
            end if
            deallocate(numbers)
            terms = n + rank
            sums = terms
#if DOOR != 0
            if (mod(n, 2) == 0) then
                call MPI_Allreduce(MPI_IN_PLACE, sums, 50, MPI_INTEGER, MPI_SUM, comm, error)
            else
#endif
                call MPI_Allreduce(terms, sums, 50, MPI_INTEGER, MPI_SUM, comm, error)
#if DOOR != 0
            end if
#endif
            if (error /= 0 .or. any(sums /= ranks * n + ranks * (ranks - 1) / 2)) then
                print *, 'fortran MISMATCH of a sum', rank, n, error
                stop 1
            end if
            allocate(all(50 * ranks))
            all = -1
            call MPI_Allgather(terms, 50, MPI_INTEGER, all, 50, MPI_INTEGER, comm, error)
            if (error /= 0 .or. any(all /= [((n + root, count = 1, 50), root = 0, ranks - 1)])) then
                print *, 'fortran MISMATCH of a gathering', rank, n, error
                stop 1
            end if
            deallocate(all)
            call MPI_Barrier(comm, error)
        end do
        call MPI_Comm_free(comm, error)
    end do
    if (rank == 0) print '(a)', 'fortran ok'
    call MPI_Finalize(error)
end program fortran
