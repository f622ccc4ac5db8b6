! Messages of a Fortran program matched by a probe and received into noncontiguous data. DOOR
! selects the MPI's Fortran API: 1 mpif.h, 2 the module mpi, 3 the module mpi_f08. Prints `matched
! ok`.
program fortran_matched
#if DOOR == 3
    use mpi_f08
#elif DOOR == 2
    use mpi
#endif
    implicit none
#if DOOR == 1
    include 'mpif.h'
#endif
    integer, parameter :: many = 1000
#if DOOR == 3
    type(MPI_Datatype) :: vector
    type(MPI_Request) :: request
    type(MPI_Message) :: message
    type(MPI_Status) :: status
#else
    integer :: vector, request, message, status(MPI_STATUS_SIZE)
#endif
    integer, asynchronous, save :: numbers(2 * many)
    integer :: error, rank, turn, n, count

    call MPI_Init(error)
    call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
    call MPI_Type_vector(many, 1, 2, MPI_INTEGER, vector, error)
    call MPI_Type_commit(vector, error)
    do turn = 1, 2
        numbers = -1
        if (rank == 0) then
            numbers(:many) = [(n, n = 1, many)]
            call MPI_Send(numbers, many, MPI_INTEGER, 1, turn, MPI_COMM_WORLD, error)
        else
            call MPI_Mprobe(0, turn, MPI_COMM_WORLD, message, MPI_STATUS_IGNORE, error)
            if (turn == 1) then
                call MPI_Mrecv(numbers, 1, vector, message, status, error)
            else
                call MPI_Imrecv(numbers, 1, vector, message, request, error)
                call MPI_Wait(request, status, error)
            end if
            call MPI_Get_count(status, vector, count, error)
            if (count /= 1 .or. any(numbers(2::2) /= -1)) stop 1
            if (any(numbers(1::2) /= [(n, n = 1, many)])) stop 1
        end if
    end do
    if (rank == 1) print '(a)', 'matched ok'
    call MPI_Finalize(error)
end program fortran_matched
